asm volatile("multimem.st.weak.global.v4.f32 [%0], {%1, %2, %3, %4};");
